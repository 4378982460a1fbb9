"""Hold 125 small pages in the idioms of lazy loading, galleries and image markup, each with the images that it means.

A line is the images' names, `|`, and the markup. Files `r*` and `o*` are photographs: a page means its `r*`, while `o*`
are other images that its attributes name. Files `w*`, and those of a telling name, are placeholders. D is a data: GIF.
"""

D = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
SHOWN_WHILE_WRITTEN = """
r1.jpg|<img src=loading.gif data-src=r1.jpg alt=a>
r1.jpg|<img src=D data-actualsrc=r1.jpg alt=a>
r1.jpg|<img src=D data-original=r1.jpg>
r1.jpg|<img src=w1.gif data-lazy-src=r1.jpg><noscript><img src=r1.jpg></noscript>
r1.jpg r2.jpg|<img src=w1.gif data-foo=r1.jpg><p>x<img src=w1.gif data-foo=r2.jpg>
r1.jpg|<img src=w2.png data-x17=r1.jpg>
r1.jpg|<img data-ll-src=r1.jpg>
r1.jpg|<img src=D data-srcset='r1.jpg 800w, o1.jpg 400w'>
r1.jpg|<img src=blank.gif srcset='r1.jpg 2x'>
r1.jpg|<img src=r1.jpg data-hover-src=o1.jpg>
r1.jpg|<img src=r1.jpg data-alt-image=o1.jpg data-flip=o2.jpg>
r1.jpg|<img src=r1.jpg data-pin-media=o1.jpg>
r1.jpg|<img src=r1.jpg data-fallback=placeholder.png onerror="this.src='placeholder.png'">
r1.jpg|<img src=r1.jpg data-placeholder=loading.gif>
r1.jpg|<img data-src=r1.jpg data-placeholder=loading.gif data-error=o1.jpg>
r1.jpg|<img class=lazy src=w1.gif><noscript><img src=r1.jpg></noscript>
r1.jpg|<noscript><img src=r1.jpg alt=a></noscript><img src=D data-src=r1.jpg alt=a>
r1.jpg|<a href=p><img src=w1.gif data-src=r1.jpg></a><noscript><a href=p><img src=r1.jpg></a></noscript>
r1.jpg|<div class=wrap><img src=D data-src=o1.jpg alt=a></div><noscript><img src=r1.jpg alt=a></noscript>
r1.jpg|<amp-img src=r1.jpg width=4 height=3 alt=a></amp-img>
r1.jpg|<amp-img src=r1.jpg><noscript><img src=r1.jpg></noscript></amp-img>
r1.jpg|<amp-img src=r1.jpg><amp-img fallback src=o1.jpg></amp-img></amp-img>
r1.jpg|<amp-img srcset='r1.jpg 800w, o1.jpg 300w' src=D></amp-img>
r1.webp|<picture><source srcset=D data-srcset=r1.webp><img src=D alt=a></picture>
r1.webp|<picture><source data-srcset='r1.webp 800w'><img src=loading.gif class=lazyload></picture>
r1.jpg|<picture><source srcset=w1.gif data-lazy-srcset=o1.webp><img src=w1.gif data-lazy-src=r1.jpg></picture>
r1.jpg|<img src=spinner.gif data-echo=r1.jpg>
r1.jpg|<img src=D data-ks-lazyload=r1.jpg>
r1.jpg|<img src=w1.gif file=r1.jpg zoomfile=o1.jpg>
r1.jpg|<img src=D lazy-src=r1.jpg>
r1.jpg|<img src=D pagespeed_lazy_src=r1.jpg>
r1.jpg|<img src=r1.jpg data-src=r1.jpg srcset='r1.jpg 1x'><noscript><img src=r1.jpg></noscript>
r1.jpg|<img data-lazy=true data-src=r1.jpg src=ajax-loader.gif>
r1.jpg|<img data-lazy=r1.jpg src=grey.gif>
r1.jpg|<img src=r1.jpg data-lazy=true data-url=index.html data-id=r2>
r1.jpg|<img src='{{ photo }}' data-src=r1.jpg>
r1.jpg|<img src=r1.jpg data-src='{{ photo.url }}'>
r1.jpg|<img src='' data-cfsrc=r1.jpg style=display:none><noscript><img src=r1.jpg></noscript>
r1.jpg r2.jpg|<img src=r1.jpg><noscript><img src=r2.jpg alt=other></noscript>
r1.jpg r1.jpg|<img src=r1.jpg><p>words</p><img src=r1.jpg>
r1.jpg r2.jpg r3.jpg|<img src=w2.png data-img=r1.jpg><img src=w2.png data-img=r2.jpg><img src=w2.png data-img=r3.jpg>
r1.jpg|<img src=r1.jpg data-avatar=o1.jpg data-author-image=o2.jpg>
r1.jpg|<object type=image/jpeg data=r1.jpg><img src=o1.jpg></object>
r1.jpg r2.jpg|<noscript><img src=r1.jpg></noscript><p>x</p><noscript><img src=r2.jpg></noscript>
r1.jpg|<img src=1x1.png data-image-src=r1.jpg alt=a>
r1.jpg|<img src=transparent.gif data-delayed-url=r1.jpg>
r1.jpg|<img src=r1.jpg data-next=o1.jpg data-prev=o2.jpg>
r1.jpg|<img src=D data-src=r1.jpg?w=800 data-sizes=auto>
r1.jpg|<img src=lazy_placeholder.gif data-original-src=r1.jpg data-low-src=o1.jpg>
r1.jpg|<img src=r1.jpg data-logo=o1.png data-map-marker=o2.png>
"""
UNREAD_UNTIL_THE_END = """
r1.jpg|<img src=pixel.gif data-runner-src=r1.jpg>
r1.jpg|<img src=w1.gif data-pagespeed-lazy-src=r1.jpg>
r1.jpg|<img src=D nitro-lazy-src=r1.jpg>
r1.jpg|<img class="swiper-lazy" data-src=r1.jpg><div class=swiper-lazy-preloader></div>
r1.jpg|<img src=w2.png data-zzz=r1.jpg alt=a title=b>
r1.jpg|<img src=D data-lazyload=r1.jpg data-bgposition=center>
r1.jpg|<img src=D data-lazy-srcset='o1.jpg 300w, r1.jpg 900w' data-lazy-sizes=100vw>
r1.jpg|<img src=spacer.gif original=r1.jpg>
r1.jpg|<img src=loading-32x32.gif real_src=r1.jpg>
r1.jpg|<img src=D osrc=r1.jpg>
r1.jpg|<img src=r1.jpg data-rollover=o1.jpg>
r1.jpg|<img src=r1.jpg data-swap-src=o1.jpg>
r1.jpg|<img src=r1.jpg data-second-image=o1.jpg>
r1.jpg|<img src=r1.jpg data-back=o1.jpg data-front-hover=o2.jpg>
r1.jpg|<img src=r1.jpg data-share-image=o1.jpg>
r1.jpg|<img src=r1.jpg data-error-src=o1.jpg>
r1.jpg|<img src=r1.jpg data-default-src=placeholder.png>
r1.jpg|<img src=r1.jpg data-loading-src=loading.gif>
r1.jpg|<img src=r1.jpg data-icon=o1.png data-flag=o2.png>
r1.jpg|<img src=r1.jpg data-bg=o1.jpg>
r1.jpg|<img src=r1.jpg data-poster=o1.jpg>
r1.jpg|<img src=r1.jpg data-before=o1.jpg data-after=o2.jpg>
r1.jpg|<figure><img src=D data-src=r1.jpg alt=a><noscript><img src=r1.jpg alt=a></noscript></figure>
r1.jpg|<span><img src=w1.gif class=b-lazy></span><noscript><img src=r1.jpg></noscript>
r1.jpg|<picture><img src=D data-src=r1.jpg></picture><noscript><picture><img src=r1.jpg></picture></noscript>
r1.jpg|<picture><source srcset=r1.jpg><img src=w1.gif></picture>
r1.jpg|<img data-src=r1.jpg src=D><noscript><img src=r1.jpg#x></noscript>
r1.jpg|<amp-anim src=r1.jpg></amp-anim>
r1.jpg|<amp-img src=r1.jpg><amp-img placeholder src=w1.gif></amp-img></amp-img>
r1.jpg|<amp-img src=r1.jpg><img slot=x src=r1.jpg></amp-img>
r1.jpg r2.jpg|<amp-carousel><amp-img src=r1.jpg></amp-img><amp-img src=r2.jpg></amp-img></amp-carousel>
r1.jpg r2.jpg|<img src=w1.gif data-src=r1.jpg><img src=w1.gif data-src=r2.jpg><noscript><img src=r2.jpg></noscript>
r1.jpg r2.jpg|<noscript><img src=r1.jpg></noscript><img src=r2.jpg alt=b>
r1.jpg r2.jpg|<p>x</p><img src=r1.jpg data-hover=o1.jpg><img src=r1.jpg data-hover=o2.jpg data-src=r2.jpg>
r1.jpg|<img src=no-image.png data-image=r1.jpg>
r1.jpg|<img src=preloader.gif data-photo=r1.jpg>
r1.jpg|<img src=img_loading.gif data-img-url=r1.jpg>
r1.jpg|<img src=D data-iurl=r1.jpg>
r1.jpg|<img src=D srcset='r1.jpg 640w'>
r1.jpg|<img src=r1.jpg srcset='D 1w'>
r1.jpg|<img srcset='D 1w' data-srcset='r1.jpg 640w' src=D>
r1.jpg|<img src=r1.jpg data-json='{"next": "o1.jpg"}' data-caption="See o1.jpg">
r1.jpg|<img src=r1.jpg data-href=page.html data-link=o1.html>
r1.jpg|<img src=w1.gif data-src=false data-original=r1.jpg>
r1.jpg|<img src=throbber.gif data-defer-src=r1.jpg>
r1.jpg|<img src=r1.jpg data-thumb=o1.jpg data-thumbnail=o2.jpg>
r1.jpg|<img src=w1.gif data-thumb=o1.jpg data-src=r1.jpg>
r1.jpg|<svg><image xlink:href=r1.jpg /></svg>
r1.jpg|<video poster=r1.jpg><img src=o1.jpg></video>
r1.jpg|<a href=o1.jpg data-src=o2.jpg><img src=r1.jpg></a>
"""
AS_KNOWN_SITES_AND_PLUGINS_WRITE = """
r1.jpg|<img class=lazyload src=r1.jpg data-src='//c.example/x_{width}x.jpg' data-widths='[180, 360]' data-sizes=auto>
r1.jpg|<noscript><img src=r1.jpg></noscript><img data-src=r1.jpg data-image=r1.jpg data-load=false>
r1.jpg|<span><img src=D data-nimg=intrinsic><noscript><img srcset='r1.jpg 1x' src=r1.jpg alt=x></noscript></span>
r1.jpg|<picture><source data-srcset=r1.jpg><img></picture><noscript><picture><img src=r1.jpg></picture></noscript>
r1.jpg|<img src=r1.jpg?w=3 data-lazy-src='r1.jpg?is-pending-load=1' srcset='D'><noscript><img src=r1.jpg></noscript>
r1.jpg|<img class='lazy lazy-hidden' src=D data-lazy-type=image data-src=r1.jpg><noscript><img src=r1.jpg></noscript>
r1.jpg|<img src="data:image/svg+xml,%3Csvg%20x=1%3E%3C/svg%3E" data-lazy-src=r1.jpg>
r1.jpg|<img src=D data-a-hires=r1.jpg data-a-dynamic-image='{"o1.jpg":[450,350]}'>
r1.jpg|<img src=D data-actualsrc=r1.jpg data-default-watermark-src=o1.jpg>
r1.jpg|<img src=D data-src-mini=o1.jpg data-src-small=o2.jpg data-src-large=r1.jpg>
r1.jpg|<img v-lazy="'r1.jpg'">
r1.jpg|<img lazyLoad=r1.jpg src=D>
r1.jpg|<img src=r1.jpg data-original-filename=o1.jpg data-file-name=o2.jpg data-name=o3.jpg>
r1.jpg r1.jpg|<p>a<img src=r1.jpg resource=./File:o1.jpg><p>b<img src=r1.jpg resource=./File:o1.jpg>
r1.jpg|<img src=r1.jpg data-mce-src=o1.jpg data-cke-saved-src=o2.jpg>
r1.jpg|<img src=r1.jpg data-src=https://x.example/r1.jpg srcset='https://x.example/r1.jpg 2x'>
r1.jpg|<img src=r1.jpg data-src=https://youtube.example/embed/x>
r1.jpg|<img src=r1.jpg data-dark-src=o1.jpg>
r1.jpg|<img src=r1.jpg data-mobile-src=o1.jpg>
r1.jpg|<img src=r1.jpg data-gif=o1.webp>
r1.jpg|<img src=dummy.png data-lazyload=r1.jpg>
r1.jpg|<img class=blur src=w1.gif alt=m><noscript><img src=r1.jpg alt=m></noscript>
r1.jpg|<img src=w2.png data-large_image=r1.jpg>
r1.jpg|<img src=r1.jpg data-zoom-image=o1.jpg>
r1.jpg r2.jpg|<div><img data-src=r1.jpg><img data-src=r2.jpg></div><noscript><img src=r1.jpg><img src=r2.jpg></noscript>
"""
